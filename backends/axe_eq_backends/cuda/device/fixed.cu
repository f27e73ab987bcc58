// Instructions and conversions. Forms: PTX ISA 8.5.

__device__ __forceinline__ unsigned shared_address(const void* p) {
  unsigned a;
  asm("{ .reg .u64 t; cvta.to.shared.u64 t, %1; cvt.u32.u64 %0, t; }" : "=r"(a) : "l"(p));
  return a;
}

__device__ __forceinline__ void barrier_init(unsigned b, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(b), "r"(arrivals) : "memory");
}

__device__ __forceinline__ void barrier_expect(unsigned b, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(b), "r"(bytes) :
  "memory");
}

__device__ __forceinline__ void barrier_arrive(unsigned b) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(b) : "memory");
}

__device__ __forceinline__ void barrier_wait(unsigned b, unsigned parity) {
  asm volatile("{\n.reg .pred done;\nagain:\n"
               "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
               "@done bra over;\nbra again;\nover:\n}" :: "r"(b), "r"(parity) : "memory");
}

// Another CTA waits for this to overwrite what was read here, and what CTAs fetch of each other is
// behind the cluster's barrier: order is needed, visibility is not. With .release.cluster and a wait
// .acquire.cluster every arrival waits for all writes of the thread on the whole device
// (MEMBAR.ALL.GPU).
__device__ __forceinline__ void barrier_arrive_at(unsigned b, int rank) {
  asm volatile("{ .reg .b32 there;\nmapa.shared::cluster.u32 there, %0, %1;\n"
               "mbarrier.arrive.shared::cluster.b64 _, [there]; }"
               :: "r"(b), "r"(rank) : "memory");
}

__device__ __forceinline__ bool elected() {
  unsigned is;
  asm volatile("{\n.reg .pred one;\nelect.sync _|one, 0xffffffff;\n"
               "selp.b32 %0, 1, 0, one;\n}" : "=r"(is));
  return is;
}

__device__ __forceinline__ void kernel_start() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

__device__ __forceinline__ void cluster_start() {
  // What the others need is behind fence.mbarrier_init.
  asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");
  asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
}

__device__ __forceinline__ void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.release;" ::: "memory");
}

__device__ __forceinline__ void cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
}

__device__ __forceinline__ unsigned peer_address(unsigned a, int rank) {
  unsigned there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(a), "r"(rank));
  return there;
}

__device__ __forceinline__ int cluster_rank() {
  int rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

__device__ __forceinline__ float f32_from_f16(unsigned half) {
  float x;
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"((unsigned short)half));
  return x;
}

__device__ __forceinline__ float get_f16(const unsigned* x, int i) {
  return f32_from_f16(x[i >> 1] >> ((i & 1) * 16));
}

__device__ __forceinline__ float get_bf16(const unsigned* x, int i) {
  return __uint_as_float(i & 1 ? x[i >> 1] & 0xffff0000u : x[i >> 1] << 16);
}

__device__ __forceinline__ unsigned pack_f16(float low, float high) {
  unsigned x;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(x) : "f"(high), "f"(low));
  return x;
}

__device__ __forceinline__ unsigned pack_bf16(float low, float high) {
  unsigned x;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(x) : "f"(high), "f"(low));
  return x;
}

__device__ __forceinline__ float round_f16(float x) {
  unsigned short half;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(x));
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(half));
  return x;
}

__device__ __forceinline__ float round_bf16(float x) {
  unsigned short half;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(half) : "f"(x));
  return __uint_as_float((unsigned)half << 16);
}

__device__ __forceinline__ float max_f32(float a, float b) {
  asm("max.NaN.f32 %0, %0, %1;" : "+f"(a) : "f"(b));
  return a;
}

__device__ __forceinline__ float min_f32(float a, float b) {
  asm("min.NaN.f32 %0, %0, %1;" : "+f"(a) : "f"(b));
  return a;
}

__device__ __forceinline__ float exp_f32(float x) {
  // Relative error below 1e-5 over the whole range: that of the rounded exponent.
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(x) : "f"(x * 1.4426950408889634f));
  return x;
}

__device__ __forceinline__ float sigmoid_f32(float x) {
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(x) : "f"(1.0f + exp_f32(-x)));
  return x;
}

__device__ __forceinline__ float exp2_f32(float x) {
  asm("ex2.approx.ftz.f32 %0, %0;" : "+f"(x));
  return x;
}

__device__ __forceinline__ float erf_f32(float x) {
  // x P(x^2) / Q(x^2) up to 3.8325, where it rounds to 1: fitted for the least relative error,
  // 1.3e-8; with float's roundings 3.2e-7. Without branches or choices it is half of erff.
  float u = min_f32(x * x, 14.688057f), q = 3.8898332e-5f, p = 2.1231349e-6f;
  p = fmaf(fmaf(fmaf(p, u, 2.8594374e-4f), u, 3.6527638e-3f), u, 5.2418564e-2f);
  p = fmaf(fmaf(p, u, 1.8730852e-1f), u, 1.1283791f);
  q = fmaf(fmaf(fmaf(q, u, 1.1417101e-3f), u, 1.4742518e-2f), u, 1.1290059e-1f);
  q = fmaf(fmaf(q, u, 4.9933076e-1f), u, 1.0f);
  asm("rcp.approx.ftz.f32 %0, %0;" : "+f"(q));
  return max_f32(min_f32(x * p * q, 1.0f), -1.0f);
}

__device__ __forceinline__ float tanh_f32(float x) {
  // x P(x^2) / Q(x^2) up to 8.4, where it rounds to 1: fitted for the least relative error, 2.2e-7;
  // with float's roundings 4.8e-7. Epilogues of 200 values of a thread run once, from cold caches.
  float u = min_f32(x * x, 70.56f), q = 2.32948491e-7f, p = 1.10200097e-5f;
  p = fmaf(fmaf(fmaf(p, u, 2.91294898e-3f), u, 1.28901324e-1f), u, 9.99999781e-1f);
  q = fmaf(fmaf(q, u, 2.33303310e-4f), u, 2.36595279e-2f);
  q = fmaf(fmaf(q, u, 4.62232942e-1f), u, 1.0f);
  asm("rcp.approx.ftz.f32 %0, %0;" : "+f"(q));
  return max_f32(min_f32(x * p * q, 1.0f), -1.0f);
}

__device__ __forceinline__ float one_more_erf_f32(float x) {
  // 2 / (1 + 2^(x P(x^2))), which is 1 + erf(x): absolute error 6e-8, up to x = -3 relative 7e-5;
  // with float's roundings 3e-7. The last coefficient of P has the others' sign for large x.
  float u = x * x, p = -4.961741e-7f;
  p = fmaf(fmaf(fmaf(p, u, 1.7852686e-5f), u, -2.6194425e-4f), u, 1.8124643e-3f);
  p = fmaf(fmaf(fmaf(p, u, 5.251367e-4f), u, -2.9651597e-1f), u, -3.2558157f);
  p = fmaf(exp2_f32(x * p), 0.5f, 0.5f);
  asm("rcp.approx.ftz.f32 %0, %0;" : "+f"(p));
  return p;
}

__device__ __forceinline__ float one_more_tanh_f32(float x) {
  x = fmaf(exp2_f32(x * -2.8853901f), 0.5f, 0.5f);
  asm("rcp.approx.ftz.f32 %0, %0;" : "+f"(x));
  return x;
}

__device__ __forceinline__ float div_f32(float a, float b) {
  asm("div.full.f32 %0, %0, %1;" : "+f"(a) : "f"(b));
  return a;
}

// Floats of 8 bits: conversions saturate, element types do not. Past the greatest finite value (ties
// away from it) comes NaN where there is no infinity, else infinity.
__device__ __forceinline__ float f32_from_f8e4m3(unsigned byte) {
  unsigned pair;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(pair) : "h"((unsigned short)(byte & 0xffu)));
  return f32_from_f16(pair);
}

__device__ __forceinline__ float f32_from_f8e5m2(unsigned byte) {
  return f32_from_f16(byte << 8);
}

__device__ __forceinline__ unsigned f8e4m3_from_f32(float x) {
  unsigned short byte;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(byte) : "f"(0.0f), "f"(x));
  return fabsf(x) <= 464.0f ? byte : 0x7fu | (__float_as_uint(x) >> 24 & 0x80u);
}

__device__ __forceinline__ unsigned f8e5m2_from_f32(float x) {
  unsigned short byte;
  asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(byte) : "f"(0.0f), "f"(x));
  unsigned past = x != x ? 0x7eu : 0x7cu;
  return fabsf(x) < 61440.0f ? byte : past | (__float_as_uint(x) >> 24 & 0x80u);
}

__device__ __forceinline__ float get_f8e4m3(const unsigned* x, int i) {
  return f32_from_f8e4m3(x[i >> 2] >> ((i & 3) * 8));
}

__device__ __forceinline__ float get_f8e5m2(const unsigned* x, int i) {
  return f32_from_f8e5m2(x[i >> 2] >> ((i & 3) * 8) & 0xffu);
}

__device__ __forceinline__ unsigned pack_f8e4m3(float a, float b, float c, float d) {
  return f8e4m3_from_f32(a) | f8e4m3_from_f32(b) << 8 | f8e4m3_from_f32(c) << 16 |
         f8e4m3_from_f32(d) << 24;
}

__device__ __forceinline__ unsigned pack_f8e5m2(float a, float b, float c, float d) {
  return f8e5m2_from_f32(a) | f8e5m2_from_f32(b) << 8 | f8e5m2_from_f32(c) << 16 |
         f8e5m2_from_f32(d) << 24;
}

__device__ __forceinline__ bool get_bool(const unsigned* x, int i) {
  return x[i >> 2] >> ((i & 3) * 8) & 0xffu;
}

__device__ __forceinline__ unsigned pack_bool(bool a, bool b, bool c, bool d) {
  return (unsigned)a | (unsigned)b << 8 | (unsigned)c << 16 | (unsigned)d << 24;
}

__device__ __forceinline__ signed char get_i8(const unsigned* x, int i) {
  return (signed char)(x[i / 4] >> i % 4 * 8);
}

__device__ __forceinline__ unsigned pack_i8(signed char a, signed char b, signed char c, signed char d) {
  return ((unsigned)a & 0xffu) << 0 | ((unsigned)b & 0xffu) << 8 | ((unsigned)c & 0xffu) << 16 | ((unsigned)d & 0xffu) << 24;
}

__device__ __forceinline__ unsigned char get_u8(const unsigned* x, int i) {
  return (unsigned char)(x[i / 4] >> i % 4 * 8);
}

__device__ __forceinline__ unsigned pack_u8(unsigned char a, unsigned char b, unsigned char c, unsigned char d) {
  return ((unsigned)a & 0xffu) << 0 | ((unsigned)b & 0xffu) << 8 | ((unsigned)c & 0xffu) << 16 | ((unsigned)d & 0xffu) << 24;
}

__device__ __forceinline__ short get_i16(const unsigned* x, int i) {
  return (short)(x[i / 2] >> i % 2 * 16);
}

__device__ __forceinline__ unsigned pack_i16(short a, short b) {
  return ((unsigned)a & 0xffffu) << 0 | ((unsigned)b & 0xffffu) << 16;
}

__device__ __forceinline__ float round_f8e4m3(float x) {
  return f32_from_f8e4m3(f8e4m3_from_f32(x));
}

__device__ __forceinline__ float round_f8e5m2(float x) {
  return f32_from_f8e5m2(f8e5m2_from_f32(x));
}

__device__ __forceinline__ double max_f64(double a, double b) {
  return a != a || a > b ? a : b;
}

__device__ __forceinline__ double min_f64(double a, double b) {
  return a != a || a < b ? a : b;
}

__device__ __forceinline__ void set_byte(unsigned& word, int place, unsigned byte) {
  word = word & ~(0xffu << 8 * place) | (byte & 0xffu) << 8 * place;
}

__device__ __forceinline__ void set_half(unsigned& word, int high, unsigned half) {
  word = high ? (word & 0xffffu) | half << 16 : (word & 0xffff0000u) | half;
}

__device__ __forceinline__ void fence_async() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// A register that the compiler keeps as it is here.
__device__ __forceinline__ void hold(unsigned& x) {
  asm volatile("" : "+r"(x));
}

__device__ __forceinline__ void hold_i32(int& x) {
  asm volatile("" : "+r"(x));
}

__device__ __forceinline__ void hold_f32(float& x) {
  asm volatile("" : "+f"(x));
}

__device__ __forceinline__ void hold_f64(double& x) {
  asm volatile("" : "+d"(x));
}

__device__ __forceinline__ void hold_i64(long long& x) {
  asm volatile("" : "+l"(x));
}

__device__ __forceinline__ void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ unsigned long long descriptor(unsigned start, unsigned long long
    form) {
  return (unsigned long long)((start & 0x3FFFF) >> 4) | form;
}

// One or two bytes of memory.
__device__ __forceinline__ unsigned ld_global_u16(const void* p) {
  unsigned short x;
  asm volatile("ld.global.b16 %0, [%1];" : "=h"(x) : "l"(p));
  return x;
}

__device__ __forceinline__ void st_global_u16(void* p, unsigned x) {
  asm volatile("st.global.b16 [%0], %1;" :: "l"(p), "h"((unsigned short)x) : "memory");
}

__device__ __forceinline__ unsigned ld_global_u8(const void* p) {
  unsigned x;
  asm volatile("ld.global.u8 %0, [%1];" : "=r"(x) : "l"(p));
  return x;
}

__device__ __forceinline__ void st_global_u8(void* p, unsigned x) {
  asm volatile("st.global.u8 [%0], %1;" :: "l"(p), "r"(x) : "memory");
}

__device__ __forceinline__ unsigned ld_shared_u16(unsigned a) {
  unsigned short x;
  asm volatile("ld.shared.b16 %0, [%1];" : "=h"(x) : "r"(a) : "memory");
  return x;
}

__device__ __forceinline__ void st_shared_u16(unsigned a, unsigned x) {
  asm volatile("st.shared.b16 [%0], %1;" :: "r"(a), "h"((unsigned short)x) : "memory");
}

__device__ __forceinline__ unsigned ld_shared_u8(unsigned a) {
  unsigned x;
  asm volatile("ld.shared.u8 %0, [%1];" : "=r"(x) : "r"(a) : "memory");
  return x;
}

__device__ __forceinline__ void st_shared_u8(unsigned a, unsigned x) {
  asm volatile("st.shared.u8 [%0], %1;" :: "r"(a), "r"(x) : "memory");
}

// What this device did before the kernel is known to who signals, in whatever proxy: a kernel's end
// orders that. One fence serves all signals: with `red.release.sys` each of them has its own.
__device__ __forceinline__ void signal_fence() {
  asm volatile("fence.acq_rel.sys;" ::: "memory");
}

__device__ __forceinline__ void signal_add(const int* number) {
  asm volatile("red.relaxed.sys.global.add.s32 [%0], 1;" :: "l"(number) : "memory");
}

__device__ __forceinline__ void signal_clear(const int* number) {
  asm volatile("st.relaxed.sys.global.s32 [%0], 0;" :: "l"(number) : "memory");
}

// What a thread knows to be stored, by bulk copies that it has waited for too.
__device__ __forceinline__ void tell_fence() {
  asm volatile("fence.proxy.async;" ::: "memory");
  asm volatile("fence.acq_rel.sys;" ::: "memory");
}

__device__ __forceinline__ void signal_tell(const int* number, int count) {
  if (count == 0) return;  // of a part of a tile that hangs over the end: no device has it
  asm volatile("red.relaxed.sys.global.add.s32 [%0], %1;" :: "l"(number), "r"(count) : "memory");
}

__device__ __forceinline__ void signal_wait(const int* number, int least) {
  int found;
  do {
    asm volatile("ld.acquire.sys.global.s32 %0, [%1];" : "=r"(found) : "l"(number) : "memory");
  } while (found < least);
  asm volatile("fence.proxy.async;" ::: "memory");
}
