/* clock.h - monotonic time. */
#pragma once

#include <stdint.h>

int64_t fl_now_ns(void);
int64_t fl_now_ms(void);

/* "2022-05-18 11:27:27", local time */
void fl_wall_text(char text[20]);
