/* extra.c - bytes of the user's own: kept, and read from a manifest. */
#include "fleet/job/extra.h"

#include <string.h>

#include "base/memory.h"

enum { MOST_EXTRA = 1 << 20 };

void fl_extra_set(fleet *f, void *extra, size_t size)
{
    fl_free(f->extra);
    f->extra = extra;
    f->extra_size = size;
}

fleet_status fleet_extra_set(fleet *f, const void *data, size_t size)
{
    void *copy = NULL;

    FL_TRY(fl_handle_check(f, "fleet_extra_set"));
    if (size > MOST_EXTRA)
        return fl_fail(FLEET_EINVAL,
                       "fleet_extra_set: expected up to %d bytes, got %zu",
                       (int)MOST_EXTRA, size);
    if (!data)
        size = 0;
    if (size > 0) {
        FL_TRY(FL_NEW(&copy, size));
        memcpy(copy, data, size);
    }
    fl_extra_set(f, copy, size);
    return FLEET_OK;
}

const void *fleet_extra_get(const fleet *f, size_t *size)
{
    if (size)
        *size = f ? f->extra_size : 0;
    return f ? f->extra : NULL;
}

fleet_status fl_extra_read(const fl_at *at, void **extra, size_t *size)
{
    const char *text = NULL;
    int64_t bytes;
    size_t n;

    *extra = NULL;
    *size = 0;
    FL_TRY(fl_at_string(at, &text));
    n = text ? strlen(text) : 0;
    if (n == 0)
        return FLEET_OK;
    if (n % 2 != 0 || n / 2 > MOST_EXTRA ||
        strspn(text, "0123456789abcdef") != n)
        return fl_at_expected(at, "two digits for each of up to 2^20 bytes");
    FL_TRY(fl_at_words(at, 1, extra, &bytes));
    *size = (size_t)bytes;
    return FLEET_OK;
}
