"""Words, stems and dates of English texts. Pure."""
