"""Backward and optimizers on device tensors. Start with `backward`.

They only adapt torch's own code: `backward` runs the engine in the calling thread and checks the devices of gradients;
`node_streams` gives each node the stream of its forward;
`optimizers` adapts the lists of devices that torch.optim knows. May import `driver.base`.
"""
