"""What device memory is for, and what holds it. Start with `categories`.

`categories` sorts live memory into parameters, gradients, activations, …; `live_categories` does it while a program
runs; `references` names the variables that keep a tensor alive. `out_of_memory` gathers the `facts` of an error, with
`program_position` (where the program is) and `largest_tensors`; `host_memory` says that the computer has too little.

May import `driver.tensor_api`, `driver.recorder` and everything below them.
"""
