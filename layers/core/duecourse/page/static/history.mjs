// Numbers over time.
export const History = () => null;
