"""torchvision: its compiled operators load into this PyTorch, and images become tensors."""


def test_compiled_operators_fit_the_framework(python):
    # A build for another PyTorch imports, and fails here.
    script = """
import torch, torchvision
boxes = torch.tensor([[0.0, 0.0, 10.0, 10.0], [1.0, 1.0, 10.0, 10.0], [20.0, 20.0, 30.0, 30.0]])
print(torchvision.ops.nms(boxes, torch.tensor([0.9, 0.8, 0.7]), 0.5).tolist())
"""
    assert python(script) == "[0, 2]"


def test_images_become_tensors(python):
    script = """
from PIL import Image
from torchvision import transforms
image = Image.new("RGB", (8, 6), (255, 0, 51))
tensor = transforms.ToTensor()(transforms.Resize((3, 4))(image))
print(list(tensor.shape), [round(float(channel.mean()), 2) for channel in tensor])
"""
    assert python(script) == "[3, 3, 4] [1.0, 0.0, 0.2]"


def test_a_model_runs(python):
    script = """
import torch, torchvision
print(list(torchvision.models.resnet18().eval()(torch.zeros(1, 3, 64, 64)).shape))
"""
    assert python(script) == "[1, 1000]"
