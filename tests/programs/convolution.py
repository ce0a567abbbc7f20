"""50 epochs of a small convolutional network: Conv, ReLU, Pool, Linear on 32 pictures of 3 x 14 x 14, with Adam."""

import torch
from torch import nn

device = torch.device("cuda:1" if torch.cuda.device_count() > 1 else "cpu")
torch.manual_seed(0)
pictures = torch.randn(32, 3, 14, 14)
labels = torch.randint(0, 10, (32,))
model = nn.Sequential(
    nn.Conv2d(3, 16, 3, padding=1),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Flatten(),
    nn.Linear(16 * 7 * 7, 10),
)

model = model.to(device)
pictures, labels = pictures.to(device), labels.to(device)
print("on:", pictures.device, model[0].weight.device)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
loss_of = nn.CrossEntropyLoss()

for epoch in range(50):
    optimizer.zero_grad()
    loss = loss_of(model(pictures), labels)
    loss.backward()
    optimizer.step()
    if epoch % 10 == 0 or epoch == 49:
        print("loss:", epoch, loss.item(), loss.device)
