/* text_kernels_vbmi2_simd.c - text_kernels_simd.c once more, for processors
 * whose AVX-512 can also pack bytes together. */
#if FL_ISA == 512
#define FL_VBMI2 1
#include "data/text/text_kernels_simd.c"
#else
typedef int fl_no_vbmi2; /* a file must not be empty */
#endif
