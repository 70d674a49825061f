"""The releases of SageMaker's training toolkit that checks and rehearsals are based on; findings name them."""

TOOLKIT = "sagemaker-training 5.1.4"
PYTORCH_TOOLKIT = "sagemaker-pytorch-training 3.0.0"
TENSORFLOW_TOOLKIT = "sagemaker-tensorflow-training 20.4.1"
