/** Does something with each of a list, with some at a time, and returns the results in the order of the list. */
export async function inParallel<T, R>(list: readonly T[], workers: number, act: (one: T) => Promise<R>): Promise<R[]> {
  const out: R[] = []
  let next = 0
  const work = async () => {
    for (;;) {
      const place = next++
      if (place >= list.length) return
      out[place] = await act(list[place] as T)
    }
  }
  await Promise.all(Array.from({ length: Math.min(workers, list.length) }, work))
  return out
}
