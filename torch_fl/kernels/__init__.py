"""How a kernel is written once and rendered for each C dialect."""
