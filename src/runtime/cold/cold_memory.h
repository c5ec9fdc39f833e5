/* cold_memory.h - a capped table's memory, which goes back to the system when
 * it is freed, at once and to the page: what malloc() keeps of freed arrays
 * would come on top of the cap.
 */
#pragma once

#include "base/error.h"

#include <stddef.h>

/* Zeros, in whole pages of the system; NULL: FLEET_ENOMEM. */
void *fl_cold_memory_new(size_t size);
void fl_cold_memory_free(void *p,
                         size_t size); /* as was asked for; NULL is fine */

/* With its bytes, and zeros behind them; NULL: it is as it was. */
void *fl_cold_memory_widen(void *p, size_t old, size_t size);

/* What is taken for that size. */
size_t fl_cold_memory_of(size_t size);
