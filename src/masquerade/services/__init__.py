"""Services: what all of them share, organisations in sessions, and collections from people."""
