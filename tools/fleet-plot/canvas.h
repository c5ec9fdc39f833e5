/* canvas.h - a picture in memory: lines with soft edges, letters of lines. */
#pragma once

#include <stdint.h>

#include "base/error.h"

typedef struct canvas {
    int width, height;
    uint8_t *pixel; /* red, green, blue; row by row from the top */
    float *cover;   /* how much of a pixel the ink will have, 0 to 1 */
    int left, top, right, bottom; /* nothing is inked outside of these */
} canvas;

/* White. canvas_done() in any case. */
fleet_status canvas_make(canvas *c, int width, int height);
void canvas_done(canvas *c);

/* Where ink will be; pixels' middles are whole numbers. A line of no length is
 * a dot. What is drawn twice has its ink once. */
void canvas_line(canvas *c, double x0, double y0, double x1, double y1,
                 double width);
/* Letters, the first one's left edge at x, standing on y; of that height. */
void canvas_text(canvas *c, double x, double y, double height,
                 const char *text);
double canvas_text_width(double height, const char *text);

/* The colour 0xrrggbb where lines and letters are; they are done with. */
void canvas_ink(canvas *c, uint32_t colour);
