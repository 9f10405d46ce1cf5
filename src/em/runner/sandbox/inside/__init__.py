"""The modules that run inside the confined process. They use the standard library only.

They are sent to that process as compiled code, since it can't read em's files.
"""
