/* run_check.c - what comes before the first batch of a training, tried. */
#include "fleet/config/models.h"

#include "base/json/json_write.h"
#include "fleet/job/dataset.h"
#include "fleet/job/job_mode.h"
#include "fleet/servers.h"

static int stop_after_one(void *user, int64_t batch, int64_t samples)
{
    (void)user;
    (void)batch;
    (void)samples;
    return 1;
}

static fleet_status read_batch(fleet_dataset *d, int64_t *samples)
{
    fl_stream *stream;
    fleet_status status;
    fl_batch *b;

    *samples = 0;
    FL_TRY(fl_dataset_open_files(d, &stream));
    status = fl_stream_next(stream, &b);
    if (status == FLEET_OK) {
        *samples = b->rows;
        fl_stream_release(stream, b);
    }
    fl_stream_close(stream);
    return status == FLEET_EEND ? FLEET_OK : status;
}

/* In a job the weights are elsewhere: a batch is read, and that is all. */
static fleet_status try_batch(fl_config_run *t, fleet_dataset *d,
                              const char *key)
{
    const fleet_train_options o = {.on_batch = stop_after_one};
    fleet_train_result r = {0};

    if (fl_handle_mode(t->f) == FL_LOCAL)
        FL_TRY(fleet_infer_from_dataset(t->tester, d, &o, &r));
    else
        FL_TRY(read_batch(d, &r.samples));
    return r.samples > 0 ? FLEET_OK
                         : fl_fail(FLEET_EEND, "%s: %s has no sample", key,
                                   d->files.n > 1 ? "none of the files"
                                                  : d->files.path[0]);
}

static fleet_status describe_run(fl_config_run *t, fleet_parameter_info *info,
                                 int n, fl_json *to)
{
    int64_t numbers = 0;
    int n_param = 0;
    fl_json *tables;

    FL_TRY(fl_json_put(to, "model", fl_json_string(t->c->model->name)));
    FL_TRY(fl_json_put(to, "mode",
                       fl_json_string(fl_job_mode_name(fl_handle_mode(t->f)))));
    FL_TRY(fl_json_put(to, "workers", fl_json_int(fleet_worker_num(t->f))));
    FL_TRY(fl_json_put(to, "servers", fl_json_int(fleet_server_num(t->f))));
    for (int i = 0; i < n; i++) {
        int64_t size = 1;

        for (int j = 0; j < info[i].n_dim; j++)
            size *= info[i].dims[j];
        numbers += info[i].is_table ? 0 : size;
        n_param += !info[i].is_table;
    }
    FL_TRY(fl_json_put(to, "parameters", fl_json_int(n_param)));
    FL_TRY(fl_json_put(to, "numbers", fl_json_int(numbers)));
    FL_TRY(fl_json_put_array(to, "tables", &tables));
    for (int i = 0; i < n; i++)
        if (info[i].is_table)
            FL_TRY(fl_json_append(tables, fl_json_string(info[i].name)));
    FL_TRY(fl_json_put(to, "train_files",
                       fl_json_int((int64_t)t->train->files.n)));
    return fl_json_put(to, "test_files",
                       fl_json_int(t->test ? (int64_t)t->test->files.n : 0));
}

static fleet_status print_run(fl_config_run *t, char **line)
{
    fl_json *json = fl_json_object();
    fleet_parameter_info *info = NULL;
    fleet_status status;
    int n;

    FL_GOTO(done, fleet_parameter_list(t->f, NULL, 0, &n));
    FL_GOTO(done, FL_NEW(&info, (size_t)(n + 1) * sizeof *info));
    FL_GOTO(done, fleet_parameter_list(t->f, info, n, &n));
    FL_GOTO(done, describe_run(t, info, n, json));
    *line = fl_json_print(json, false);
    status = *line ? FLEET_OK : FLEET_ENOMEM;
done:
    fl_json_free(json);
    fl_free(info);
    return status;
}

fleet_status fl_run_check(fl_config_run *t, char **line)
{
    FL_TRY(fl_servers_check_log(t->f));
    if (fleet_is_server(t->f))
        return FLEET_OK;
    FL_TRY(fl_run_make_executors(t));
    FL_TRY(try_batch(t, t->train, "dataset.train"));
    if (t->test)
        FL_TRY(try_batch(t, t->test, "dataset.test"));
    if (t->validated && t->validated != t->test)
        FL_TRY(try_batch(t, t->validated, "dataset.validation"));
    if (t->items && t->c->n_items > 0)
        FL_TRY(try_batch(t, t->items, "dataset.items"));
    return fleet_is_first_worker(t->f) ? print_run(t, line) : FLEET_OK;
}
