"""Export of a kept run to files that other programs read: traces, tables, one document, pictures, a page."""
