"""Training steps of torchvision's ResNet-50, with the recipe of PyTorch's page on mixed precision.

`python resnet50.py cpu` trains in float32 on the CPU; `python resnet50.py cuda` in float16 with autocast.
"""

import sys
import time

import torch
from torch import nn
from torchvision.models import resnet50

device = sys.argv[1]
mixed = device == "cuda"
torch.manual_seed(0)
model = resnet50().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
scaler = torch.amp.GradScaler(device, init_scale=1024.0, enabled=mixed)  # 65536 skips the first steps
loss_of = nn.CrossEntropyLoss()
pictures = torch.randn(8, 3, 224, 224).to(device)
labels = torch.randint(0, 1000, (8,)).to(device)

seconds = []
for _ in range(4):
    begin = time.perf_counter()
    optimizer.zero_grad()
    with torch.autocast(device, dtype=torch.float16, enabled=mixed):
        loss = loss_of(model(pictures), labels)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    print(f"loss {loss.item():.3f}")
    seconds.append(time.perf_counter() - begin)
print(f"{min(seconds):.2f} s a step, loss {loss.item():.3f}")
