"""The kernel's answers to JupyterLab's sidebar. Start with `answers`.

The TypeScript side is `labextension/src/kernel/ask.ts`: it evaluates one expression in the kernel and gets JSON back.

May import everything except `cli`.
"""
