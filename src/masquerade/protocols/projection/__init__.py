"""Random orthogonal projection between owners of columns and the third party that the method needs."""
