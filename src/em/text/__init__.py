"""Terms, stems and dates of English texts. Pure."""
