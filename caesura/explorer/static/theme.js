/* Light or dark as the person chose last, before anything is drawn; else as the system has it. */
{
  const chosen = localStorage.getItem("caesura-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
}
