"""report.html: a comparison as one page that fetches nothing. `document` puts it together."""
