/* extra.h - bytes of the user's own that saves hold. */
#pragma once

#include "base/json/json.h"
#include "fleet/job/handle.h"

/* The handle's from now on: memory for fl_free(), or NULL. */
void fl_extra_set(fleet *f, void *extra, size_t size);

/* From a manifest's text of hexadecimal digits, which may be absent: for
 * fl_free(). */
fleet_status fl_extra_read(const fl_at *at, void **extra, size_t *size);
