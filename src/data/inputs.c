/* inputs.c - see inputs.h. */
#include "data/inputs.h"

#include <stdbool.h>

#include "base/memory.h"
#include "data/io/unpack.h"

fleet_status fl_inputs_init(fl_inputs *in, const char *const *path, int n,
                            const char *command, int n_ahead, int bell)
{
    *in = (fl_inputs){.path = path,
                      .n = n,
                      .command = command,
                      .bell = bell,
                      .n_ahead = n_ahead,
                      .current = -1};
    if (n_ahead > 1) {
        in->ahead = fl_alloc_array((size_t)n, sizeof *in->ahead);
        if (!in->ahead)
            return FLEET_ENOMEM;
    }
    return FLEET_OK;
}

/* A plain file comes from the page cache faster than through a queue. */
static bool is_slow(const fl_inputs *in, int file)
{
    return in->command || fl_is_packed(in->path[file]);
}

static fleet_status start_ahead(fl_inputs *in)
{
    int last = in->current + in->n_ahead;

    for (; in->started < in->n && in->started < last; in->started++)
        if (is_slow(in, in->started))
            FL_TRY(fl_ahead_start(&in->ahead[in->started],
                                  in->path[in->started], in->command,
                                  in->bell));
    return FLEET_OK;
}

static void close_current(fl_inputs *in)
{
    fl_source_close(in->source);
    in->source = NULL;
    if (in->ahead && in->current >= 0) {
        fl_ahead_close(in->ahead[in->current]);
        in->ahead[in->current] = NULL;
    }
}

fleet_status fl_inputs_next(fl_inputs *in)
{
    close_current(in);
    if (in->current + 1 >= in->n)
        return FLEET_EEND;
    in->current++;
    if (in->ahead) {
        FL_TRY(start_ahead(in));
        if (in->ahead[in->current])
            return fl_ahead_wait(in->ahead[in->current]);
    }
    return fl_source_open(&in->source, in->path[in->current], in->command,
                          in->bell);
}

fleet_status fl_inputs_read(fl_inputs *in, void *to, size_t size, size_t *got)
{
    double share;

    if (in->source) {
        FL_TRY(fl_source_read(in->source, to, size, got));
        share = fl_source_share(in->source);
    } else {
        FL_TRY(fl_ahead_read(in->ahead[in->current], to, size, got));
        share = fl_ahead_share(in->ahead[in->current]);
    }
    in->share = (in->current + share) / in->n;
    return FLEET_OK;
}

void fl_inputs_done(fl_inputs *in)
{
    fl_source_close(in->source);
    in->source = NULL;
    for (int i = 0; in->ahead && i < in->started; i++)
        fl_ahead_close(in->ahead[i]);
    fl_free(in->ahead);
    in->ahead = NULL;
}
