"""Examples of messages, one module for each protocol: what vectors are made from."""
