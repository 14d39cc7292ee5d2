"""What every service shares: who may speak to it, what it takes and keeps, how it starts and stops.

Nothing is loaded before it is asked for: import the module that you need.
"""
