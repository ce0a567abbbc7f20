"""The first program of every course: is there a GPU, and how do things get onto it and off it?"""

import torch
from torch import nn

print("available:", torch.cuda.is_available(), "devices:", torch.cuda.device_count())
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

torch.manual_seed(0)
x = torch.randn(4, 3)
layer = nn.Linear(3, 2)
print("before:", x.device, layer.weight.device)

x = x.to(device)
layer.to(device)
y = layer(x)
print("after:", x.device, layer.weight.device, y.device)

back = y.detach().cpu()
print("back:", back.device, back.numpy().shape)
print("loss:", [round(value, 6) for value in back.flatten().tolist()])
