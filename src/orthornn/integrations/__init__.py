"""The networks in the frameworks of others. Each module imports its framework, so import the one that you need:
`orthornn.integrations.sb3` for sb3-contrib, `orthornn.integrations.torchrl` for TorchRL.
"""
