/* read_once.c - which files come once, and that they do. */
#include "fleet/job/read_once.h"

#include <string.h>
#include <sys/stat.h>

#include "data/io/pipe_command.h"

static bool is_standard_input(const char *path)
{
    return strcmp(path, "-") == 0;
}

/* One that cannot be looked at is named when it is opened. */
static bool comes_once(const char *path)
{
    struct stat st;

    return is_standard_input(path) ||
           (stat(path, &st) == 0 && !S_ISREG(st.st_mode) &&
            !S_ISDIR(st.st_mode));
}

static const char *name_of(const char *path)
{
    return is_standard_input(path) ? "standard input" : path;
}

/* A command that opens what it reads can do so again. */
static const char *first_once(const fl_stream_spec *spec)
{
    if (fl_pipe_command_has_path(spec->pipe_command))
        return NULL;
    for (int i = 0; i < spec->n_file; i++)
        if (comes_once(spec->files[i]))
            return spec->files[i];
    return NULL;
}

fleet_status fl_read_once_check_means(const fl_stream_spec *spec)
{
    const char *path = first_once(spec);

    return path ? fl_fail(FLEET_EINVAL,
                          "dataset: %.500s can be read once, and standardize "
                          "makes its means in a pass before: expected means of "
                          "another dataset or of a load, or a regular file",
                          name_of(path))
                : FLEET_OK;
}

fleet_status fl_read_once_begin(fleet_dataset *d, const fl_stream_spec *spec)
{
    const char *path = first_once(spec);
    bool standard = false;

    if (!path)
        return FLEET_OK;
    for (int i = 0; i < spec->n_file; i++)
        standard = standard || is_standard_input(spec->files[i]);
    if (spec->share_count > 1 || spec->next_lease)
        return fl_fail(FLEET_EINVAL,
                       "dataset: %.500s can be read once, and %d workers "
                       "would read it: expected a file for each%s",
                       name_of(path), d->fleet->role.worker_num,
                       spec->next_lease ? ", and lease_lines 0" : "");
    if (d->read_once || (standard && d->fleet->read_stdin))
        return fl_fail(FLEET_ESTATE,
                       "dataset: %.500s was read already, and can be read "
                       "once: for another pass expected a regular file, or a "
                       "pipe_command that makes the lines anew",
                       standard && d->fleet->read_stdin ? "standard input"
                                                        : name_of(path));
    d->read_once = true;
    d->fleet->read_stdin = d->fleet->read_stdin || standard;
    return FLEET_OK;
}
