/* predict_text.h - what calls that score text keep between them. */
#pragma once

struct fl_text_run;

/* A list of them; NULL is fine. */
void fl_text_runs_destroy(struct fl_text_run *first);
