"""What people look at: result tables, figures, a gallery of one task, and the HTML page that holds them."""
