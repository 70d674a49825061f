"""torchaudio: it loads beside this PyTorch and computes."""


def test_resamples_and_transforms(python):
    # No file is read: that takes programs and libraries which differ from release to release.
    script = """
import math, torch, torchaudio
wave = torch.sin(2 * math.pi * 440 * torch.arange(16000) / 16000).unsqueeze(0)
half = torchaudio.transforms.Resample(16000, 8000)(wave)
spectrum = torchaudio.transforms.Spectrogram(n_fft=800, power=2)(half).mean(-1)[0]
print(list(half.shape), int(spectrum.argmax()) * 8000 // 800)
"""
    assert python(script) == "[1, 8000] 440"
