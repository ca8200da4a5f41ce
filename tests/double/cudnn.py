"""`import cudnn` for a process with this folder on its path: the stand-in of tests/cudnn_double.py."""

import cupy_double  # noqa: F401 - its memory and streams
from cudnn_double import *  # noqa: F403
from cudnn_double import __version__ as __version__
