/* memory_left.h - how much memory this process may take before the system ends
 * it, or another one, for want of memory. */
#pragma once

#include <stdint.h>

/* Bytes that the system and each control group of this process have left,
 * counting what is cached of files; INT64_MAX where nothing says so. */
int64_t fl_memory_left(void);

/* The same where the system's files are below a folder: for tests. */
int64_t fl_memory_left_below(const char *root);
