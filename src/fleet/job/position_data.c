/* position_data.c - what data a position is of. */
#include "fleet/job/position_data.h"

#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#include "base/hash.h"
#include "base/json/json_write.h"
#include "base/text.h"
#include "data/format/formats.h"
#include "fleet/job/dataset_memory.h"

static const char *base_of(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

/* What cuts files into lines that are samples. */
static fl_json *lines_of(const fleet_dataset_options *o)
{
    fl_text t = {0};
    fl_json *json;

    fl_text_add(&t, "skip %" PRId64 "%s, separator %d, comment %d",
                o->skip_lines, o->header ? ", header" : "", o->separator,
                o->comment);
    json = t.status == FLEET_OK ? fl_json_string(fl_text_chars(&t)) : NULL;
    fl_text_done(&t);
    return json;
}

/* Names without their folders, which may be elsewhere by then, and sizes. */
fleet_status fl_position_files(const fl_paths *files, fl_json *json)
{
    int64_t bytes = 0;
    fl_hasher h;

    fl_hasher_init(&h, 0);
    for (size_t i = 0; i < files->n; i++) {
        const char *name = base_of(files->path[i]);
        struct stat st;
        int64_t size = stat(files->path[i], &st) == 0 ? (int64_t)st.st_size : 0;

        fl_hasher_add(&h, name, strlen(name) + 1);
        fl_hasher_add(&h, &size, sizeof size);
        bytes += size;
    }
    FL_TRY(fl_json_put(json, "files", fl_json_int((int64_t)files->n)));
    FL_TRY(fl_json_put(json, "first", fl_json_string(base_of(files->path[0]))));
    FL_TRY(fl_json_put(json, "last",
                       fl_json_string(base_of(files->path[files->n - 1]))));
    FL_TRY(fl_json_put(json, "bytes", fl_json_int(bytes)));
    return fl_json_put(json, "names_and_sizes", fl_json_hex(fl_hasher_end(&h)));
}

/* Of samples in memory it is what they were read from. */
static fleet_status put_files(const fleet_dataset *d, fl_json *json)
{
    fl_at held;

    if (!d->memory || !d->memory->loaded)
        return fl_position_files(&d->files, json);
    held = fl_at_root(d->memory->files);
    for (fl_at e = fl_at_first_member(&held); e.json;
         fl_at_next_member(&held, &e))
        FL_TRY(fl_json_put(json, fl_at_name(&e), fl_json_copy(e.json)));
    return FLEET_OK;
}

/* Batches of bad lines alone do not count, and samples in memory are cut into
 * batches when bad lines are gone. */
static fleet_status put_bad_lines(const fleet_dataset *d, fl_json *json)
{
    if (d->options.max_bad_lines == 0)
        return FLEET_OK;
    return fl_json_put(json, "bad_lines",
                       fl_json_string(d->memory ? "left out of memory"
                                                : "left out of batches"));
}

static fleet_status put_data(const fleet_dataset *d, fl_json *json)
{
    const char *format = fl_format_names[d->options.format];
    const fleet_dataset_options *o = &d->options;
    const char *pipe = o->pipe_command ? o->pipe_command : "cat";

    FL_TRY(fl_json_put(json, "seed", fl_json_hex(d->fleet->context.seed)));
    FL_TRY(
        fl_json_put(json, "workers", fl_json_int(d->fleet->role.worker_num)));
    FL_TRY(fl_json_put(json, "format", fl_json_string(format)));
    FL_TRY(fl_json_put(json, "batch_size", fl_json_int(o->batch_size)));
    FL_TRY(fl_json_put(json, "shuffle", fl_json_int(o->shuffle)));
    FL_TRY(fl_json_put(json, "pipe_command", fl_json_string(pipe)));
    FL_TRY(fl_json_put(json, "lines", lines_of(o)));
    FL_TRY(put_bad_lines(d, json));
    if (o->lease_lines > 0)
        FL_TRY(fl_json_put(json, "lease_lines", fl_json_int(o->lease_lines)));
    if (o->negative_rate > 0)
        FL_TRY(fl_json_put(json, "negative_rate",
                           fl_json_double(o->negative_rate, 17)));
    if (o->draw_slot) {
        FL_TRY(fl_json_put(json, "draw_slot", fl_json_string(o->draw_slot)));
        FL_TRY(
            fl_json_put(json, "draw_most", fl_json_double(o->draw_most, 17)));
    }
    return put_files(d, json);
}

fleet_status fl_position_data(const fleet_dataset *d, fl_json **data)
{
    fleet_status status;

    *data = fl_json_object();
    status = *data ? put_data(d, *data) : FLEET_ENOMEM;
    if (status != FLEET_OK) {
        fl_json_free(*data);
        *data = NULL;
    }
    return status;
}
