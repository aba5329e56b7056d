"""The networks in other frameworks. Each module imports its framework, so import only the one that you need:
`orthornn.integrations.sb3` for sb3-contrib, `orthornn.integrations.torchrl` for TorchRL.
"""
