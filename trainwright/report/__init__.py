"""Pages of what there is: of one image, of two side by side, of the catalog."""
