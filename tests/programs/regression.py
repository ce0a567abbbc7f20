"""100 epochs of linear regression, over tensors that are already on the device."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)
x = torch.randn(64, 10)
y = x @ torch.randn(10, 1) + 0.1 * torch.randn(64, 1)
model = nn.Linear(10, 1)

x, y, model = x.to(device), y.to(device), model.to(device)
print("on:", x.device, next(model.parameters()).device)
batches = DataLoader(TensorDataset(x, y), batch_size=16, shuffle=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
loss_of = nn.MSELoss()

for epoch in range(100):
    total = 0.0
    for inputs, targets in batches:
        optimizer.zero_grad()
        loss = loss_of(model(inputs), targets)
        loss.backward()
        optimizer.step()
        total += loss.item()
    if epoch % 20 == 0 or epoch == 99:
        print("loss:", epoch, total / len(batches), loss.device)
