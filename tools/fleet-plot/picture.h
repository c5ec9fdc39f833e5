/* picture.h - a chart as pixels. */
#pragma once

#include "canvas.h"
#include "chart.h"

/* Of all panels, which lie in two columns; each as high as `height`.
 * canvas_done() in any case. */
fleet_status picture_draw(chart *c, int width, int height, canvas *to);
