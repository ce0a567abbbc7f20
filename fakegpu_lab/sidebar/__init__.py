"""What JupyterLab's extension asks of a kernel. Start with `answers`.

For the sidebar, `labextension/src/kernel/ask.ts` evaluates one expression in the kernel and gets JSON back. For a file
that is opened by a double click, `labextension/src/recordings/view.ts` calls `recording.show`.

May import everything except `cli`.
"""
