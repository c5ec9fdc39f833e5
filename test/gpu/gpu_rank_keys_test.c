/* gpu_rank_keys_test.c - ranks on emulated GPUs with keys: who reads them, and
 * what rank 0 does without. */
#define SUITE gpu_rank_keys
#include "gpu_rank_kit.h"
#include "job_kit.h"
#include "launch_kit.h"
#include "rank_keys_kit.h"
#include "test.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Nothing has this address: a documentation's. */
#define ELSEWHERE "192.0.2.1:39999"

static void check_joins(const fleet_role *role, fleet_status status,
                        const char *words)
{
    kit_model m;

    gpu_rank_open(2);
    kit_open(&m, KIT_MLP, &(kit_options){.device = "gpu:0", .role = role});
    CHECK_FAILS(fleet_init_worker(m.f), status, words);
    kit_close(&m);
    gpu_rank_close();
}

TEST(without_keys_rank_0_is_met_from_this_machine_alone)
{
    static const char refused[] =
        "rank 0 would listen at tcp://" ELSEWHERE
        ", which other machines reach, without keys: FLEET_KEYS names";
    fleet_role role = {.worker_num = 2, .master = ELSEWHERE};

    check_joins(&role, FLEET_EINVAL, refused);
    setenv("FLEET_INSECURE", "1", 1);
    check_joins(&role, FLEET_EIO, "rank 0 cannot listen at tcp://" ELSEWHERE);
    unsetenv("FLEET_INSECURE");
    rank_keys_need();
    setenv("FLEET_KEYS", rank_keys_make("keys", 2), 1);
    check_joins(&role, FLEET_EIO, "rank 0 cannot listen at tcp://" ELSEWHERE);
}

/* Whatever the address says that ranks are told. */
TEST(without_keys_a_socket_that_other_machines_reach_is_refused)
{
    struct sockaddr_in at = {.sin_family = AF_INET};
    fleet_role role = {.worker_num = 2, .master = "127.0.0.1:39999"};

    role.listen_fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(bind(role.listen_fd, (struct sockaddr *)&at, sizeof at) == 0 &&
          listen(role.listen_fd, 9) == 0);
    check_joins(&role, FLEET_EINVAL, "which other machines reach");
    close(role.listen_fd);
}

TEST(a_rank_without_a_key_is_named_by_all)
{
    fleet_role role = {.worker_num = 3, .master = "127.0.0.1:39999"};

    setenv("FLEET_KEYS", rank_keys_make("keys", 2), 1);
    check_joins(&role, FLEET_ENOENT,
                "the folder of keys has none of worker 2, of 3");
}

/* Groups of ranks are communicators with a rendezvous of their own. */
static void in_groups(fleet_distributed_strategy *s)
{
    s->use_hierarchical_allreduce = 1;
    s->hierarchical_allreduce_inter_nranks = 2;
}

TEST(ranks_train_with_keys_as_without)
{
    gpu_rank_lesson plain = {.ranks = 4, .batches = 8, .last = 50},
                    keyed = plain;

    rank_keys_need();
    plain.how.choose = keyed.how.choose = in_groups;
    gpu_rank_open(4);
    gpu_rank_run(&plain);
    setenv("FLEET_KEYS", rank_keys_make("keys", 4), 1);
    gpu_rank_run(&keyed);
    CHECK(memcmp(plain.weight[0], keyed.weight[0], sizeof *plain.weight) == 0);
    CHECK(plain.updates[0] > 0);
    gpu_rank_close();
}

/* --- under fleetrun ------------------------------------------------------- */

TEST_LIMIT(jobs_have_keys_unless_they_are_told_not_to, 200)
{
    static const char off[] = "keys are off (FLEET_INSECURE): whoever reaches "
                              "rank 0's port can take a rank's place";
    const char *config, *want;

    rank_keys_need();
    test_use_fraction(10);
    job_use_gpus(2);
    config = job_on_gpus(job_adult("\"deterministic\": true"));
    want = job_hash(job_train("--devices 0,1", config));
    CHECK(!strstr(launch_log("workerlog.0"), "keys are off"));
    CHECK_CONTAINS(job_train("--insecure --devices 0,1", config), want);
    CHECK_CONTAINS(launch_log("workerlog.0"), off);
    CHECK_CONTAINS(launch_log("workerlog.1"), off);
}
