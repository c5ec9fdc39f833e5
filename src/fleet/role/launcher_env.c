/* launcher_env.c - each launcher's variables, and which of them count. */
#include "fleet/role/launcher_env.h"

#include <string.h>

#include "fleet/role/env.h"

enum { MOST_NAME = 5, MOST_GPU = 4096 };

/* The first name is Paddle's in every job; the other names are of launchers of
 * ranks. */
static const char *const nums[MOST_NAME] = {"PADDLE_TRAINERS_NUM",
                                            "PADDLE_GLOBAL_SIZE",
                                            "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"};
static const char *const indices[MOST_NAME] = {
    "PADDLE_TRAINER_ID", "PADDLE_GLOBAL_RANK", "OMPI_COMM_WORLD_RANK",
    "PMI_RANK", "PMIX_RANK"};
static const char *const local_indices[MOST_NAME] = {
    "PADDLE_LOCAL_RANK", "PADDLE_RANK_IN_NODE", "OMPI_COMM_WORLD_LOCAL_RANK",
    "MPI_LOCALRANKID"};

static const char endpoints_variable[] = "PADDLE_TRAINER_ENDPOINTS";

/* A number, and the variable that said it first; NULL: none has. */
typedef struct said {
    const char *name;
    int value;
} said;

static fleet_status agree(said *s, const char *name, int value)
{
    if (s->name && s->value != value)
        return fl_fail(FLEET_EINVAL,
                       "%s says %d, but %s says %d: expected the same", s->name,
                       s->value, name, value);
    if (!s->name)
        *s = (said){name, value};
    return FLEET_OK;
}

static fleet_status take(said *s, const char *name, int low, int high)
{
    const char *text = fl_variable(name);
    int value;

    if (!text)
        return FLEET_OK;
    FL_TRY(fl_variable_read(name, text, low, high, &value));
    return agree(s, name, value);
}

static fleet_status take_all(said *s, const char *const *name, int low,
                             int high)
{
    for (int i = 0; i < MOST_NAME && name[i]; i++)
        FL_TRY(take(s, name[i], low, high));
    return FLEET_OK;
}

/* --- endpoints ------------------------------------------------------------ */

/* How many there are, the first one, and the place of `own`, or -1. */
static fleet_status look_through(const char *list, const char *own,
                                 fl_address first, int *count, int *place)
{
    fl_address one;

    *place = -1;
    for (*count = 0;; list++) {
        size_t length = strcspn(list, ",");

        FL_TRY(fl_read_endpoint(endpoints_variable, list, length, one));
        if (*count == 0)
            memcpy(first, one, sizeof one);
        if (own && *place < 0 && strcmp(one, own) == 0)
            *place = *count;
        ++*count;
        list += length;
        if (!*list)
            return FLEET_OK;
    }
}

static fleet_status take_endpoints(said *num, said *index, fl_address first)
{
    static const char own_variable[] = "PADDLE_CURRENT_ENDPOINT";
    const char *list = fl_variable(endpoints_variable);
    const char *own = fl_variable(own_variable);
    fl_address address;
    int count, place;

    if (own)
        FL_TRY(fl_read_endpoint(own_variable, own, strlen(own), address));
    if (!list)
        return FLEET_OK;
    FL_TRY(look_through(list, own ? address : NULL, first, &count, &place));
    FL_TRY(agree(num, endpoints_variable, count));
    if (own && place < 0)
        return fl_fail(FLEET_EINVAL,
                       "%s is \"%.200s\": expected one of %s, \"%.500s\"",
                       own_variable, own, endpoints_variable, list);
    return own ? agree(index, own_variable, place) : FLEET_OK;
}

/* --- Slurm ---------------------------------------------------------------- */

/* Only what srun has started has the number of its step's tasks; a batch script
 * has SLURM_PROCID and SLURM_NTASKS, too, but is none of the tasks. Below
 * another launcher the variables are of that one's processes, not of ranks:
 * they count if nothing else says how many there are. */
static fleet_status take_slurm(said *num, said *index, said *local)
{
    FL_TRY(take(num, "SLURM_STEP_NUM_TASKS", 1, FL_MOST_STREAM));
    if (!num->name)
        return FLEET_OK;
    FL_TRY(take(index, "SLURM_PROCID", 0, num->value - 1));
    return take(local, "SLURM_LOCALID", 0, num->value - 1);
}

/* --- all of it ------------------------------------------------------------ */

static int value_of(const said *s)
{
    return s->name ? s->value : -1;
}

fleet_status fl_rank_read(fl_rank *r, bool endpoints)
{
    said num = {0}, index = {0}, local = {0};
    const char *master = fl_variable("PADDLE_MASTER");
    int last = FL_MOST_STREAM - 1;

    *r = (fl_rank){-1, -1, -1, false, ""};
    for (int i = 1; i < MOST_NAME; i++)
        if ((nums[i] && fl_variable(nums[i])) || fl_variable(indices[i]))
            r->is_launched = true;
    FL_TRY(take_all(&num, nums, 1, FL_MOST_STREAM));
    if (endpoints)
        FL_TRY(take_endpoints(&num, &index, r->first));
    if (master) /* where ranks meet, whichever process listens at it */
        FL_TRY(fl_read_endpoint("PADDLE_MASTER", master, strlen(master),
                                r->first));
    if (num.name)
        last = num.value - 1;
    FL_TRY(take_all(&index, indices, 0, last));
    FL_TRY(take_all(&local, local_indices, 0, last));
    if (!num.name)
        FL_TRY(take_slurm(&num, &index, &local));
    r->num = value_of(&num);
    r->index = value_of(&index);
    r->local_index = value_of(&local);
    return FLEET_OK;
}

fleet_status fl_rank_need(fl_rank *r)
{
    FL_TRY(fl_rank_read(r, true));
    if (r->num < 0 && r->index > 0)
        return fl_fail(FLEET_ENOENT,
                       "this process is rank %d, but nothing says of how many: "
                       "expected PADDLE_TRAINERS_NUM, OMPI_COMM_WORLD_SIZE, "
                       "PMI_SIZE or SLURM_STEP_NUM_TASKS",
                       r->index);
    if (r->num > 1 && r->index < 0)
        return fl_fail(FLEET_ENOENT,
                       "there are %d workers, but nothing says which one this "
                       "is: expected PADDLE_TRAINER_ID, OMPI_COMM_WORLD_RANK, "
                       "PMI_RANK, PMIX_RANK or SLURM_PROCID",
                       r->num);
    r->num = r->num < 0 ? 1 : r->num;
    r->index = r->index < 0 ? 0 : r->index;
    return FLEET_OK;
}

fleet_status fl_rank_gpu(const fl_rank *r, int *gpu)
{
    static const char name[] = "FLAGS_selected_gpus";
    const char *list = fl_variable(name);
    int64_t n;

    *gpu = r->local_index >= 0 ? r->local_index : r->index;
    if (!list)
        return FLEET_OK;
    if (!fl_read_digits(list, strcspn(list, ","), MOST_GPU - 1, &n))
        return fl_fail(FLEET_EINVAL,
                       "%s is \"%.100s\": expected the numbers of GPUs, with "
                       "commas",
                       name, list);
    *gpu = (int)n;
    return FLEET_OK;
}
