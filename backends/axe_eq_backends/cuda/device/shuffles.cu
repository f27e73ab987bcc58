// A value of another lane, by kind of register; `up` gives the first lanes their own.

__device__ __forceinline__ float shuffle_${name}(float x, int ${number}) {
  asm volatile("shfl.sync.${mode}.b32 %0, %0, %1, ${last}, 0xffffffff;" : "+f"(x) : "r"(${number}));
  return x;
}

__device__ __forceinline__ int shuffle_${name}_i32(int x, int ${number}) {
  asm volatile("shfl.sync.${mode}.b32 %0, %0, %1, ${last}, 0xffffffff;" : "+r"(x) : "r"(${number}));
  return x;
}

__device__ __forceinline__ double shuffle_${name}_f64(double x, int ${number}) {
  asm volatile("{ .reg .b32 a, b; mov.b64 {a, b}, %0;"
               " shfl.sync.${mode}.b32 a, a, %1, ${last}, 0xffffffff;"
               " shfl.sync.${mode}.b32 b, b, %1, ${last}, 0xffffffff; mov.b64 %0, {a, b}; }"
               : "+d"(x) : "r"(${number}));
  return x;
}

__device__ __forceinline__ long long shuffle_${name}_i64(long long x, int ${number}) {
  asm volatile("{ .reg .b32 a, b; mov.b64 {a, b}, %0;"
               " shfl.sync.${mode}.b32 a, a, %1, ${last}, 0xffffffff;"
               " shfl.sync.${mode}.b32 b, b, %1, ${last}, 0xffffffff; mov.b64 %0, {a, b}; }"
               : "+l"(x) : "r"(${number}));
  return x;
}
