/* chart.h - what is drawn, before it is known on what: panels of curves, and
 * the axes of each. */
#pragma once

#include "run_file.h"

enum { MOST_RUNS = 16, MOST_TICKS = 12, TICK_TEXT = 24 };

typedef struct curve {
    const series *s;
    int run;            /* whose */
    bool is_validation; /* beside a training's in its panel */
} curve;

typedef struct scale {
    double low, high;
    bool log;   /* of logarithms */
    bool whole; /* of whole numbers */
    int n_tick;
    double tick[MOST_TICKS]; /* on the scale, of growing numbers */
    char text[MOST_TICKS][TICK_TEXT];
} scale;

typedef struct panel {
    column shown;
    curve curve[2 * MOST_RUNS];
    int n;
    scale x, y;
} panel;

typedef struct chart {
    const run_list *runs;
    axis by;
    panel panel[N_COLUMN];
    int n;
} chart;

/* The panels of these columns that have a number; a validation's loss is in the
 * panel of the loss. FLEET_ENOENT: none has. log: losses over a scale of
 * logarithms. */
fleet_status chart_make(const run_list *runs, axis by,
                        const bool show[N_COLUMN], bool log, chart *c);

/* From 0 (low) to 1. */
double scale_at(const scale *s, double x);
/* At most n ticks for what lies between the two. */
void scale_ticks(scale *s, int n);
