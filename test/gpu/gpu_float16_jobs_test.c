/* gpu_float16_jobs_test.c - jobs in float16 on emulated GPUs, with ranks and
 * servers: one decision of all ranks, so the same bits whoever keeps what. */
#define SUITE gpu_float16_jobs
#include "job_kit.h"
#include "test.h"

#include <string.h>

/* Updates are skipped at first, as so large a loss overflows, and each time the
 * scale has grown too far for a batch of one of the ranks. */
#define FLOAT16                                                                \
    "\"amp\": true, \"amp_configs\": {\"init_loss_scaling\": 536870912, "      \
    "\"decr_every_n_nan_or_inf\": 1, \"decr_ratio\": 0.0625, "                 \
    "\"incr_every_n_steps\": 4, \"incr_ratio\": 2}, "
#define IN_ORDER "\"deterministic\": true"
#define ROWS     "\"is_collective\": true, "
#define SYNC     "\"a_sync\": false, "

#define RANKS   "--devices 0,1"
#define SERVERS "--server_num 1 --worker_num 2 --devices 0,1"
#define HYBRID  "--server_num 1 --worker_num 2 --collective --devices 0,1"

/* Emulated kernels take seconds for Adult's five epochs. */
#define PART 10

static const char *trained(const char *flags, const char *strategy,
                           const char *ps)
{
    const char *line =
        job_train(flags, job_on_gpus(job_adult_kept(strategy, ps)));

    CHECK_CONTAINS(line, "\"device\":\"cuda:");
    return line;
}

/* Rows with ranks and servers, all or some of them; and dense parameters on
 * servers, whose gradients are each rank's own. */
TEST_LIMIT(adult_has_the_same_bits_wherever_parameters_are, 300)
{
    const char *want, *line, *strategy = FLOAT16 ROWS SYNC IN_ORDER;

    test_use_fraction(PART);
    job_use_gpus(2);
    line = trained(RANKS, FLOAT16 IN_ORDER, "");
    CHECK_CONTAINS(line, "\"mode\":\"collective\"");
    job_above(line, "auc", 0.87);
    want = job_hash(line);
    line = trained(HYBRID, strategy, "");
    CHECK_CONTAINS(line, "\"mode\":\"hybrid\"");
    CHECK_CONTAINS(line, want);
    CHECK_CONTAINS(trained(HYBRID, strategy, "\"embedding\": false"), want);
    CHECK_CONTAINS(trained(HYBRID, strategy,
                           "\"tower_0\": true, \"wide.b\": true, "
                           "\"embedding\": false"),
                   want);
}

TEST_LIMIT(adult_learns_without_waiting_and_with_servers_alone, 300)
{
    static const char *const how[][3] = {
        {HYBRID, FLOAT16 ROWS "\"a_sync\": true", "\"mode\":\"hybrid\""},
        {SERVERS, FLOAT16 "\"a_sync\": false", "\"mode\":\"ps-sync\""},
        {SERVERS, FLOAT16 "\"a_sync\": true", "\"mode\":\"ps-async\""}};

    test_use_fraction(PART);
    job_use_gpus(2);
    for (int i = 0; i < 3; i++) {
        const char *line = trained(how[i][0], how[i][1], "");

        CHECK_CONTAINS(line, how[i][2]);
        job_above(line, "auc", 0.87);
    }
}
