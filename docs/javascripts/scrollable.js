// Code and tables that are wider than the page can be scrolled with the keyboard too.
const reach = () => {
  for (const part of document.querySelectorAll("pre > code, .md-typeset__scrollwrap, math[display=block]")) {
    if (part.scrollWidth > part.clientWidth) part.tabIndex = 0;
    else part.removeAttribute("tabindex");
  }
};
document.addEventListener("DOMContentLoaded", reach);
window.addEventListener("load", reach);
window.addEventListener("resize", reach);
