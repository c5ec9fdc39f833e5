/* terminal.h - a chart as text. */
#pragma once

#include <stdio.h>

#include "chart.h"

typedef struct terminal {
    int width, height; /* of a panel, in characters */
    bool braille;      /* eight dots to a character, else marks of ASCII */
    bool colours;      /* escapes of a terminal */
} terminal;

/* FLEET_ENOMEM, and nothing else: what the stream says is in ferror(). */
fleet_status terminal_draw(const terminal *t, chart *c, FILE *to);

/* A line for each run: its mark or colour, and what its numbers came to. */
fleet_status terminal_summary(const terminal *t, const chart *c, FILE *to);
