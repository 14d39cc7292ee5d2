"""The networks, policies and experiments of the papers that masquerade builds on."""
