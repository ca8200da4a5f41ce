"""The subcommands of torch-fl, one module each; see torch_fl.cli."""
