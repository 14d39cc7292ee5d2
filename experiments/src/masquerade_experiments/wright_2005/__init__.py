"""Wright (2005), a talk: mining fully distributed data, in which each person keeps one record."""
