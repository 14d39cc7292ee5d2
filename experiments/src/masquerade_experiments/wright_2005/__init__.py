"""Wright (2005), a talk: mining data that are fully distributed, one record a person."""
